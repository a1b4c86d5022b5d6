-- The chunks that meet conditions.
SELECT rid FROM chunks WHERE /* conditions */ true;
