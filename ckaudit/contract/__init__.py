"""The file formats: their fields, how they are read and written, and what one document can violate."""
