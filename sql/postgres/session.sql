-- What statements here expect, whatever the server, the role or the address say.
SELECT set_config('standard_conforming_strings', 'on', false), set_config('client_encoding', 'UTF8', false),
       set_config('default_transaction_isolation', 'read committed', false);
