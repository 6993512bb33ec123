module sandtide.test/server

go 1.19
