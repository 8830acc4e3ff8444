# tries: calls home
# exercise: 1.4
# verdict: error
# flagged: yes

import socket

socket.create_connection(("127.0.0.1", 9), 1)
