module github.com/spillway-mq/spillway

go 1.26
