-- How many chunks meet conditions, which the caller writes in place of the placeholder, counted no further than most.
SELECT count(*) FROM (SELECT FROM chunks WHERE /* conditions */ true LIMIT %(most)s) AS passing;
