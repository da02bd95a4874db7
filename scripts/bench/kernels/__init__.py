"""Steps and kernels on a processor, by what the machine allows."""
