-- The cluster of every chunk whose point has one, for cluster_labels: through its document where points are documents.
CREATE OR REPLACE TEMP TABLE staged_clusters AS
SELECT d.rid, m.cluster FROM new_map AS m JOIN documents AS d ON d.node_id = m.node_id WHERE m.cluster >= 0
UNION ALL
SELECT d.rid, m.cluster FROM new_map AS m JOIN documents AS d ON d.doc_id = m.doc_id
WHERE m.node_id IS NULL AND m.cluster >= 0;
