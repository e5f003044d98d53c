"""The wild split: families of the zoo, drawn with a fault or none, that the auditor is only scored on."""
