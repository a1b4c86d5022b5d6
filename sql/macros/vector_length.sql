-- The length of a vector. It is summed in DOUBLE, as every product is: so versions of DuckDB, which sum in different orders,
-- agree on nine decimals.
CREATE OR REPLACE MACRO vector_length(vector) AS
    sqrt(array_inner_product(CAST(CAST(vector AS FLOAT[384]) AS DOUBLE[384]), CAST(CAST(vector AS FLOAT[384]) AS DOUBLE[384])));
