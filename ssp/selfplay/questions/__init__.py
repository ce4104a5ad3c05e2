"""Questions of earlier runs, given again or measured."""
