"""One file a family of systems; importing a module registers what it defines."""
