"""Knowledge graphs: their facts, vectors learnt from them, mentions in texts, and questions answered over them."""
