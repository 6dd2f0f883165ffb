-- The indexes that SQLite gets by this number are here since the first.
SELECT 1;
