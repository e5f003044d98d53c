"""The wild split: families of the zoo with a random fault or none, on which the auditor is only scored."""
