"""The generated world as an artifact: books, datasets and a graph for whoever gives none."""
