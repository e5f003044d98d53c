"""The playbook's rows of advice: a first look at what is seen, what each severity asks for, and the order of the work."""
