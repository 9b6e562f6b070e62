"""Knowledge graphs: the stages from a file of facts to vectors, mentions and KagNET."""
