# Compresses hits; the same hits give the same bytes.
gzip -9 -n
