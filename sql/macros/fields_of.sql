-- The names in a list of fields such as 'text, heading_path'; an unknown one is an error.
CREATE OR REPLACE MACRO fts_main_documents.fields_of(fields) AS
    list_transform(string_split(fields, ','), lambda field: CAST(trim(field) AS ENUM ('text', 'heading_path')));
