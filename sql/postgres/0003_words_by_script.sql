-- Words were stemmed by Postgres, by their script; 0004 has its own index of them.
SELECT;
