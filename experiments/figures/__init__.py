"""The paper's figures and tables, from the runs of a user in any training stack."""
