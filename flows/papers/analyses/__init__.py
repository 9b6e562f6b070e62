"""The papers' analyses, each a flow that makes a table or figure from the stages' artifacts."""
