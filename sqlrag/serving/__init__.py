"""What the REST adapter is made of: routes from public functions, and what a server needs around them."""
