-- Every vector becomes the same one, which takes no room.
UPDATE documents SET embedding = (SELECT CAST(list(0.0) AS FLOAT[384]) FROM range(384));
