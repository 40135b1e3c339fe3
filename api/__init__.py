"""What people and programs meet: HTTP service, client and command line."""
