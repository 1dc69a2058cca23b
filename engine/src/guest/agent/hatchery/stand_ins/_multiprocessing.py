"""What `multiprocessing` has in C: nothing here, but its modules import this one."""
