"""Who trains: policies behind one seam, which know nothing of models or sockets."""
