"""How published weights travel from a learner to the engines that play with them."""
