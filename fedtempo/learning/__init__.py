"""What clients and server learn: trainers behind one seam, and the aggregator."""
