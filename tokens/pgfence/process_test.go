package pgfence_test

func runWorkerIfAsked() {}
