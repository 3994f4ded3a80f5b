-- Removes the fences of this database with all that they remember, and with them
-- the triggers of every table that fence.protect made safe: from here on such a
-- table takes unfenced writes. Its fence_token column stays. The roles stay too,
-- as other databases may use them.
DROP SCHEMA fence CASCADE;
