DROP TABLE fence_guard
