"""The pipeline: from files to documents to chunks to a store."""

from sqlrag.arguments import refuse_calls

refuse_calls(__name__)
