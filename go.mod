module ncclfix

go 1.25.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/sergi/go-diff v1.4.0
)

require github.com/stretchr/testify v1.9.0 // indirect
