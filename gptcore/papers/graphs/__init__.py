"""Knowledge graphs: facts as triples, vectors of entities and relations learnt from them, and what both can tell."""
