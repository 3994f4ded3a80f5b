-- The item server is somebody else's service: it has a database of its own.
CREATE DATABASE items;
