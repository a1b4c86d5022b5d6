-- The key of a row as the end of its doc_id: percent-encoded where it has characters that an id cannot have.
CASE WHEN regexp_matches($key, '[%#]|\p{C}|\p{Zl}|\p{Zp}|^\s|\s$') OR nfc_normalize($key) <> $key
    THEN url_encode($key) ELSE $key END
