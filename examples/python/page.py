def on_init():
    print("Hello from Python")
page = "this is a very long string if I had the energy to type more and more ..."
def on_client_request():
    def generator():
        return "text/plain", page
    return generator
