"""Reading and writing the files of the contract."""
