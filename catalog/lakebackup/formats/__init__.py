"""What files hold, whoever wrote them: archives, logs, snapshots, queues."""
