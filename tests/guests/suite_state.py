"""Counts its requests in a file: module-level values are constants."""
COUNT = "/tmp/count"


def on_init():
    write(0)


def read():
    file = open(COUNT, "r")
    text = file.read()
    file.close()
    return int(text)


def write(count):
    file = open(COUNT, "w")
    file.write(str(count))
    file.close()


def on_save():
    print("saving")
    return str(read())


def on_restore(state):
    if not state.isdigit():
        raise ValueError("not a count")
    write(int(state))


def on_client_request():
    count = read() + 1
    write(count)
    return str(count)
