module sarama

go 1.24

require (
	github.com/IBM/sarama v1.61.0
	github.com/xdg-go/scram v1.1.2
)
