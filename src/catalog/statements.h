/*
 * Every SQL statement of the catalog: X (id, text), and Y (id, text for SQLite, text for PostgreSQL) where the two know
 * nothing in common. All are prepared when the catalog is opened, which also proves that the tables are what this
 * version expects. Parameters are bound in order.
 *
 * Sums are cast, as PostgreSQL's are no whole numbers, and what is a truth value is made a number where a column or an
 * aggregate needs one. dialect.h tells what is changed in each text that PostgreSQL gets.
 */
#ifndef ECFS_CATALOG_STATEMENTS_H
#define ECFS_CATALOG_STATEMENTS_H

/* Indexes that are made anew where a whole catalog is filled (restore.h): a later version does not change them. */
#define ECFS_INDEX_ENTRIES_BY_POSITION "entries_by_position ON entries (parent, position, ino)"
#define ECFS_INDEX_ENTRIES_BY_INO      "entries_by_ino ON entries (ino)"
#define ECFS_INDEX_EXTENTS_BY_OBJECT   "extents_by_object ON extents (object)"

#define INODE_COLUMNS                                                                                                  \
    "i.ino, i.mode, i.nlink, i.uid, i.gid, i.rdev, i.size, i.atime_ns, i.mtime_ns, i.ctime_ns, i.btime_ns, "           \
    "i.committed_size, i.code, i.data_bytes, i.content_sum, i.committed_mtime_ns"
#define N_INODE_COLUMNS 16
/* Where names are looked up and where they are listed the database has each entry once: two that differ are damaged. */
#define ENTRY_IS_LISTED                                                                                                \
    "EXISTS (SELECT 1 FROM entries x INDEXED BY entries_by_position WHERE x.parent = e.parent "                        \
    "AND x.position = e.position AND x.ino = e.ino AND x.name = e.name)"
#define ENTRY_IS_FOUND                                                                                                 \
    "EXISTS (SELECT 1 FROM entries x WHERE x.parent = e.parent AND x.name = e.name "                                   \
    "AND +x.position = e.position AND +x.ino = e.ino)" /* + leaves only the primary key to find it by */
#define REPAIR_COLUMNS                                                                                                 \
    "r.object, r.idx, s.instance, s.endpoint, r.gone, r.found_ns, r.reason FROM repairs r "                            \
    "JOIN stripes s ON s.object = r.object AND s.idx = r.idx"
#define OBJECT_COLUMNS                                                                                                 \
    "id, uuid, epoch, sequence, code, size, segment_bytes, block_bytes, header_bytes, digest, sha256, seal, kind"
#define PAST_COLUMNS                                                                                                   \
    "-id, uuid, epoch, sequence, code, size, segment_bytes, block_bytes, header_bytes, digest, sha256, seal, kind"
#define PAST_ROW                                                                                                       \
    "INTO past_objects (uuid, epoch, sequence, code, size, segment_bytes, block_bytes, header_bytes, digest, sha256, " \
    "seal, kind, removed_age_ns) SELECT uuid, epoch, sequence, code, size, segment_bytes, block_bytes, header_bytes, " \
    "digest, sha256, seal, kind, ?2 FROM objects WHERE id = ?1"
/* A stripe that may be taken back; and an object of which some are looked after: what was removed behind ?2, and what
 * marks need. */
#define IS_PAST "at_once IN (0, 4)"
#define PAST_IS_KEPT                                                                                                   \
    "(p.removed_age_ns > ?2 OR EXISTS (SELECT 1 FROM deletions d WHERE d.object = p.uuid AND d.at_once = 4))"
#define SINCE_OF_TWO    "coalesce (since, sequence), (SELECT coalesce (since, sequence) FROM objects WHERE id = ?2)"
#define EXTENT_COLUMNS  "start, length, object, object_start, sha256, generation"
#define DEEPEST         "100000" /* of directories: deeper is a circle */
#define STAGING_COLUMNS "id, ino, state, fresh, size, since_ns, error"
#define ESTIMATE_COLUMNS                                                                                               \
    "latency_p5_us, latency_p50_us, latency_p95_us, read_p5, read_p50, read_p95, write_p5, write_p50, write_p95"
#define EXCLUDED_ESTIMATE_COLUMNS                                                                                      \
    "excluded.latency_p5_us, excluded.latency_p50_us, excluded.latency_p95_us, excluded.read_p5, excluded.read_p50, "  \
    "excluded.read_p95, excluded.write_p5, excluded.write_p50, excluded.write_p95"
#define DELETION_COLUMNS "id, object, idx, instance, endpoint, queued_age_ns, sequence"

/* PostgreSQL's binary values are big-endian, those of the journal are not. */
#define PG_BYTE(x, from, to) "(((CAST (" x " AS bigint) >> " #from ") & 255) << " #to ")"
#define PG_LE8(x)                                                                                                      \
    "int8send (" PG_BYTE (x, 0, 56) " | " PG_BYTE (x, 8, 48) " | " PG_BYTE (x, 16, 40) " | " PG_BYTE (                 \
        x, 24, 32) " | " PG_BYTE (x, 32, 24) " | " PG_BYTE (x, 40, 16) " | " PG_BYTE (x, 48, 8) " | " PG_BYTE (x, 56,  \
                                                                                                               0) ")"

/* clang-format off */
#define ECFS_STATEMENTS(X, Y) \
    Y (BEGIN, "BEGIN IMMEDIATE", "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE") \
    Y (BEGIN_READ, "BEGIN DEFERRED", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") \
    Y (BEGIN_LOOK, "BEGIN DEFERRED", "") \
    Y (BEGIN_OPTIMISTIC, "BEGIN DEFERRED", "") \
    X (COMMIT, "COMMIT") \
    X (ROLLBACK, "ROLLBACK") \
    X (SAVEPOINT, "SAVEPOINT op") \
    X (RELEASE, "RELEASE op") \
    X (ROLLBACK_TO, "ROLLBACK TO op") \
    X (META_GET, "SELECT archive, epoch FROM meta WHERE id = 1") \
    X (META_INSERT, "INSERT INTO meta (id, archive, epoch, created_ns) VALUES (1, ?, 1, ?)") \
    X (COUNTERS_INSERT, "INSERT INTO counters (id, next_ino, next_position, sequence, n_inodes, n_files, n_objects, " \
       "content_bytes, stripe_bytes, n_staged, n_not_full, n_deletions, journal_records, n_lost) " \
       "VALUES (1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)") \
    Y (NEXT_ID, "SELECT seq + 1 FROM sqlite_sequence WHERE name = ?", "SELECT last + 1 FROM ids WHERE name = ?") \
    Y (IDS_TAKE, "SELECT ? + ?", "UPDATE ids SET last = last + CAST (?2 AS bigint) WHERE name = ?1 RETURNING last") \
    X (COUNTERS_GET, "SELECT next_ino, next_position, sequence, n_inodes, n_files, n_objects, content_bytes, " \
       "stripe_bytes, n_staged, n_not_full, n_deletions, journal_records, n_lost FROM counters WHERE id = 1") \
    X (COUNTERS_SET, "UPDATE counters SET next_ino = ?, next_position = ?, sequence = ?, n_inodes = ?, n_files = ?, " \
       "n_objects = ?, content_bytes = ?, stripe_bytes = ?, n_staged = ?, n_not_full = ?, n_deletions = ?, " \
       "journal_records = ?, n_lost = ? WHERE id = 1") \
    X (COUNTERS_ADD, "UPDATE counters SET sequence = sequence + ?, n_inodes = n_inodes + ?, n_files = n_files + ?, " \
       "n_objects = n_objects + ?, content_bytes = content_bytes + ?, stripe_bytes = stripe_bytes + ?, " \
       "n_staged = n_staged + ?, n_not_full = n_not_full + ?, n_deletions = n_deletions + ?, " \
       "journal_records = journal_records + ?, n_lost = n_lost + ? WHERE id = 1 RETURNING sequence") \
    X (AGE_GET, "SELECT boot, boot_ns, real_ns, age_ns FROM age WHERE id = 1") \
    X (AGE_SET, "UPDATE age SET boot = ?, boot_ns = ?, real_ns = ?, age_ns = ? WHERE id = 1") \
    X (INODE_GET, "SELECT " INODE_COLUMNS " FROM inodes i WHERE i.ino = ?") \
    X (INODE_INSERT, "INSERT INTO inodes (ino, mode, nlink, uid, gid, rdev, size, atime_ns, mtime_ns, ctime_ns, " \
       "btime_ns, committed_size, code, data_bytes, content_sum, committed_mtime_ns, target) " \
       "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") \
    X (INODE_UPDATE, "UPDATE inodes SET mode = ?2, uid = ?3, gid = ?4, size = ?5, atime_ns = ?6, mtime_ns = ?7, " \
       "ctime_ns = ?8, committed_size = ?9, code = ?10, data_bytes = ?11, content_sum = ?12, committed_mtime_ns = ?13 " \
       "WHERE ino = ?1") \
    X (INODE_FILL, "UPDATE inodes SET size = ?2, mtime_ns = ?3, ctime_ns = ?4, committed_size = ?5, data_bytes = ?6, " \
       "content_sum = ?7 WHERE ino = ?1 AND mode & 61440 = 32768") \
    X (INODE_TOUCH, "UPDATE inodes SET mtime_ns = ?2, ctime_ns = ?3 WHERE ino = ?1") \
    X (INODE_RELINK, "UPDATE inodes SET nlink = ?2, mtime_ns = ?3, ctime_ns = ?4 WHERE ino = ?1") \
    X (INODE_DELETE, "DELETE FROM inodes WHERE ino = ?") \
    X (INODE_TARGET, "SELECT target FROM inodes WHERE ino = ?") \
    /* Others may be about to store one, or to give it a name then. */ \
    Y (INODE_ORPHANS, "SELECT ino FROM inodes WHERE nlink = 0 AND ctime_ns <= ? ORDER BY ino LIMIT ?", \
       "SELECT ino FROM inodes i WHERE nlink = 0 AND ctime_ns <= ? AND NOT EXISTS (SELECT 1 FROM staging s WHERE s.ino = i.ino) " \
       "AND NOT EXISTS (SELECT 1 FROM intents n WHERE n.ino = i.ino) ORDER BY ino LIMIT ?") \
    X (INODE_ANY_CODED, "SELECT 1 FROM inodes WHERE code IS NOT NULL AND mode & 61440 = 16384 LIMIT 1") \
    X (INODE_MAX, "SELECT coalesce (max (ino), 0) FROM inodes") \
    X (ENTRY_LOOKUP, "SELECT " INODE_COLUMNS ", " ENTRY_IS_LISTED " FROM entries e CROSS JOIN inodes i ON i.ino = e.ino " \
       "WHERE e.parent = ? AND e.name = ?") \
    X (ENTRY_GET, "SELECT ino, position FROM entries WHERE parent = ? AND name = ?") \
    X (ENTRY_INSERT, "INSERT INTO entries (parent, name, position, ino) VALUES (?, ?, ?, ?)") \
    X (ENTRY_PUT, "INSERT INTO entries (parent, name, position, ino) SELECT ?1, ?2, ?3, ino FROM inodes WHERE ino = ?4 " \
       "ON CONFLICT (parent, name) DO UPDATE SET position = excluded.position, ino = excluded.ino") \
    X (ENTRY_DELETE, "DELETE FROM entries WHERE parent = ? AND name = ?") \
    X (ENTRY_SET_INO, "UPDATE entries SET ino = ?3 WHERE parent = ?1 AND name = ?2") \
    X (ENTRY_MOVE, "UPDATE entries SET parent = ?3, name = ?4 WHERE parent = ?1 AND name = ?2") \
    X (ENTRY_ANY, "SELECT 1 FROM entries WHERE parent = ? LIMIT 1") \
    X (ENTRY_OF_INO, "SELECT parent, name FROM entries WHERE ino = ? ORDER BY parent, name LIMIT 1") \
    X (ENTRY_LIST, "SELECT e.position, e.name, " INODE_COLUMNS ", " ENTRY_IS_FOUND " FROM entries e INDEXED BY entries_by_position " \
       "CROSS JOIN inodes i ON i.ino = e.ino WHERE e.parent = ? AND e.position > ? ORDER BY e.position LIMIT ?") \
    X (ENTRY_PATH, "WITH RECURSIVE up (ino, parent, name, depth) AS (SELECT ino, parent, name, 1 FROM (SELECT * FROM " \
       "entries WHERE ino = ?1 ORDER BY parent, name LIMIT 1) one UNION SELECT e.ino, e.parent, e.name, depth + 1 " \
       "FROM entries e, up WHERE e.ino = up.parent AND up.parent <> 1 AND depth < " DEEPEST ") " \
       "SELECT ino, parent, name FROM (SELECT 1) one, up ORDER BY depth, parent, name") \
    X (XATTR_ABOVE, "WITH RECURSIVE up (ino, depth) AS (SELECT CAST (?1 AS bigint), 0 UNION SELECT e.parent, depth + 1 " \
       "FROM entries e, up WHERE e.ino = up.ino AND up.ino <> 1 AND depth < " DEEPEST ") " \
       "SELECT x.value, depth, up.ino FROM (SELECT 1) one, up LEFT JOIN xattrs x ON x.ino = up.ino AND x.name = ?2 " \
       "WHERE x.ino IS NOT NULL OR depth = " DEEPEST " ORDER BY depth LIMIT 1") \
    X (XATTR_GET, "SELECT value FROM xattrs WHERE ino = ? AND name = ?") \
    X (XATTR_SET, "INSERT INTO xattrs (ino, name, value) VALUES (?, ?, ?) " \
       "ON CONFLICT (ino, name) DO UPDATE SET value = excluded.value") \
    X (XATTR_DELETE, "DELETE FROM xattrs WHERE ino = ? AND name = ?") \
    X (XATTR_ANY, "SELECT 1 FROM xattrs WHERE name = ? LIMIT 1") \
    X (XATTR_INODES, "SELECT ino FROM xattrs WHERE name = ? AND ino > ? ORDER BY ino LIMIT ?") \
    X (XATTR_LIST, "SELECT name FROM xattrs WHERE ino = ? ORDER BY name") \
    X (XATTR_DELETE_ALL, "DELETE FROM xattrs WHERE ino = ?") \
    X (EXTENT_LIST, "SELECT " EXTENT_COLUMNS " FROM extents WHERE ino = ? ORDER BY start") \
    X (EXTENT_INSERT, "INSERT INTO extents (ino, start, length, object, object_start, sha256, generation) " \
       "VALUES (?, ?, ?, ?, ?, ?, ?)") \
    X (EXTENT_MOVE, "UPDATE extents SET object = ?4, object_start = ?5, sha256 = ?7, generation = ?8 WHERE ino = ?1 AND start = 0 " \
       "AND object = ?2 AND object_start = ?3 AND length = ?6") \
    X (EXTENT_SET_SHA256, "UPDATE extents SET sha256 = ?2, generation = ?3 WHERE ino = ?1 AND start = 0") \
    X (EXTENT_SHARERS, "SELECT " EXTENT_COLUMNS ", ino FROM extents WHERE object = ? AND start = 0 " \
       "AND ino > ? ORDER BY ino LIMIT ?") \
    X (EXTENT_ALL, "SELECT ino, start, length, object FROM extents WHERE (ino, start) > (?, ?) ORDER BY ino, start LIMIT ?") \
    X (EXTENT_FILES, "SELECT count(DISTINCT ino) FROM extents WHERE object = ?") \
    X (EXTENT_BYTES, "SELECT CAST (coalesce (sum (length), 0) AS BIGINT) FROM extents WHERE object = ?") \
    X (EXTENT_COPY, "INSERT INTO extents (ino, start, length, object, object_start, sha256, generation) " \
       "SELECT ?1, start, length, object, object_start, sha256, generation FROM extents WHERE ino = ?2") \
    X (EXTENT_DELETE_ALL, "DELETE FROM extents WHERE ino = ?") \
    X (EXTENT_DELETE_FROM, "DELETE FROM extents WHERE ino = ? AND start >= ?") \
    X (EXTENT_SHORTEN, "UPDATE extents SET length = ?2 - start, sha256 = NULL WHERE ino = ?1 AND start < ?2 AND start + length > ?2") \
    X (EXTENT_OF_OBJECT, "SELECT ino FROM extents WHERE object = ? LIMIT 1") \
    X (EXTENT_DIRECTORIES, "SELECT DISTINCT n.parent FROM extents x CROSS JOIN entries n ON n.ino = x.ino WHERE x.object = ?") \
    X (EXTENT_INODES, "SELECT DISTINCT ino FROM extents WHERE object = ? ORDER BY ino") \
    X (EXTENT_SET_OBJECT, "UPDATE extents SET object = ?2 WHERE object = ?1") \
    X (OBJECT_GET, "SELECT " OBJECT_COLUMNS " FROM objects WHERE id = ?") \
    X (OBJECT_LIST, "SELECT " OBJECT_COLUMNS " FROM objects WHERE id > ? ORDER BY id LIMIT ?") \
    X (OBJECT_LIST_BY_UUID, "SELECT " OBJECT_COLUMNS " FROM objects WHERE uuid > ? ORDER BY uuid LIMIT ?") \
    X (STRIPE_KNOWN, "SELECT EXISTS (SELECT 1 FROM objects o JOIN stripes s ON s.object = o.id WHERE o.uuid = ?1 " \
       "AND s.idx = ?2 AND s.instance = ?3) OR EXISTS (SELECT 1 FROM intents i " \
       "JOIN intent_stripes s ON s.intent = i.id WHERE i.object = ?1 AND s.idx = ?2 AND s.instance = ?3)") \
    X (STRIPE_CURRENT, "SELECT EXISTS (SELECT 1 FROM objects o JOIN stripes s ON s.object = o.id WHERE o.uuid = ?1 " \
       "AND s.idx = ?2 AND s.instance = ?3 AND s.endpoint = ?4)") \
    X (OBJECT_BY_UUID, "SELECT " OBJECT_COLUMNS " FROM objects WHERE uuid = ?") \
    X (OBJECT_INSERT, "INSERT INTO objects (id, uuid, epoch, sequence, code, size, segment_bytes, block_bytes, " \
       "header_bytes, digest, sha256, seal, kind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)") \
    X (OBJECT_KIND, "SELECT kind FROM objects WHERE id = ?") \
    X (OBJECT_SET_KIND, "UPDATE objects SET kind = ?2 WHERE uuid = ?1") \
    X (OBJECT_SET_SIZE, "UPDATE objects SET size = ?2 WHERE id = ?1") \
    X (OBJECT_ADD_DEAD, "UPDATE objects SET dead_bytes = dead_bytes + ?2 WHERE id = ?1") \
    X (OBJECTS_OF_KIND, "SELECT id FROM objects o WHERE kind = ?1 AND kind <> 0 AND id > ?2 AND " \
       "(?4 = 0 OR NOT EXISTS (SELECT 1 FROM intents WHERE object = o.uuid)) ORDER BY id LIMIT ?3") \
    X (OBJECTS_DEAD, "SELECT id FROM objects o WHERE kind = 2 AND kind <> 0 AND id > ?1 AND " \
       "(dead_bytes * 100 >= size * ?2 AND dead_bytes > 0 AND " \
       "(SELECT CAST (coalesce (sum (length), 0) AS BIGINT) FROM extents WHERE object = o.id) * 100 <= size * (100 - ?2) " \
       "OR NOT EXISTS (SELECT 1 FROM extents WHERE object = o.id)) " \
       "AND NOT EXISTS (SELECT 1 FROM intents WHERE object = o.uuid) ORDER BY id LIMIT ?3") \
    X (OBJECT_DEAD, "SELECT dead_bytes FROM objects WHERE id = ?") \
    X (OBJECT_SET_DEAD, "UPDATE objects SET dead_bytes = size - (SELECT CAST (coalesce (sum (length), 0) AS BIGINT) FROM extents WHERE object = ?1) WHERE id = ?1") \
    X (OBJECTS_SET_DEAD, "UPDATE objects SET dead_bytes = size - (SELECT CAST (coalesce (sum (length), 0) AS BIGINT) FROM extents WHERE object = objects.id) " \
       "WHERE kind <> 0") \
    X (OBJECTS_UNNAMED, "SELECT id FROM objects o WHERE NOT EXISTS (SELECT 1 FROM extents WHERE object = o.id) LIMIT ?") \
    X (OBJECTS_SMALL, "SELECT id FROM objects o WHERE kind = 2 AND kind <> 0 AND id > ?1 AND size < ?2 AND " \
       "(SELECT count(*) FROM (SELECT 1 FROM extents WHERE object = o.id LIMIT ?4) AS few) < ?4 ORDER BY id LIMIT ?3") \
    X (OBJECT_FILL_SHA256, "UPDATE objects SET sha256 = ?2 WHERE uuid = ?1 AND sha256 IS NULL") \
    X (OBJECT_SET_SHA256, "UPDATE objects SET sha256 = ?2 WHERE uuid = ?1") \
    X (OBJECT_SET_CODE, "UPDATE objects SET code = ?2 WHERE id = ?1") \
    X (OBJECT_DELETE, "DELETE FROM objects WHERE id = ?") \
    X (STRIPE_LIST, "SELECT idx, instance, endpoint, size, digest FROM stripes WHERE object = ? ORDER BY idx") \
    X (STRIPE_INSERT, "INSERT INTO stripes (object, idx, instance, endpoint, size, digest) VALUES (?, ?, ?, ?, ?, ?)") \
    X (STRIPE_SET_SIZE, "UPDATE stripes SET size = ?3 WHERE object = ?1 AND idx = ?2") \
    X (STRIPE_DELETE, "DELETE FROM stripes WHERE object = ? AND idx = ?") \
    X (STRIPE_DELETE_ALL, "DELETE FROM stripes WHERE object = ?") \
    Y (INTENT_INSERT, "INSERT INTO intents (id, object, ino, epoch, sequence, begun_ns) VALUES (?, ?, ?, ?, ?, ?)", \
       "INSERT INTO intents (id, object, ino, epoch, sequence, begun_ns, member) VALUES (?, ?, ?, ?, ?, ?, MINE)") \
    X (INTENT_GET, "SELECT object, epoch, sequence FROM intents WHERE id = ?") \
    Y (INTENT_LIST, "SELECT id FROM intents ORDER BY id LIMIT ?", \
       "SELECT id FROM intents WHERE member = MINE ORDER BY id LIMIT ?") \
    Y (INTENT_LIST_DEAD, "SELECT id FROM intents WHERE id < 0 LIMIT ?", "SELECT id FROM intents WHERE NOT EXISTS " \
       "(SELECT 1 FROM members m WHERE m.id = intents.member AND m.session IS NOT NULL) ORDER BY id LIMIT ?") \
    X (INTENT_IS, "SELECT 1 FROM intents WHERE id = ?") \
    X (INTENT_DELETE, "DELETE FROM intents WHERE id = ?") \
    X (INTENT_IS_BARE, "SELECT 1 FROM intents WHERE object = ? AND NOT EXISTS " \
       "(SELECT 1 FROM intent_stripes WHERE intent = intents.id) LIMIT 1") \
    X (INTENT_DELETE_BARE, "DELETE FROM intents WHERE object = ? AND NOT EXISTS " \
       "(SELECT 1 FROM intent_stripes WHERE intent = intents.id)") \
    X (INTENT_STRIPE_INSERT, "INSERT INTO intent_stripes (intent, idx, instance, endpoint) VALUES (?, ?, ?, ?)") \
    X (INTENT_STRIPE_LIST, "SELECT idx, instance, endpoint FROM intent_stripes WHERE intent = ? " \
       "ORDER BY idx, instance") \
    X (INTENT_STRIPE_DELETE, "DELETE FROM intent_stripes WHERE intent = ? AND instance = ?") \
    X (INTENT_STRIPE_DELETE_INDEX, "DELETE FROM intent_stripes WHERE intent = ? AND idx = ?") \
    X (INTENT_STRIPE_DELETE_ALL, "DELETE FROM intent_stripes WHERE intent = ?") \
    /* Of a stripe that was never in an object, whether it is sealed is known where all are. */ \
    X (DELETION_INSERT, "INSERT INTO deletions (object, idx, instance, endpoint, queued_age_ns, at_once, sequence, " \
       "bytes, queued_ns, digest, born, sealed, seal_key) SELECT ?1, ?2, ?3, ?4, ?5, " \
       "CASE WHEN ?6 = 0 AND EXISTS (SELECT 1 FROM marks m WHERE m.sequence >= coalesce (o.since, coalesce (o.sequence, 0))) " \
       "THEN 4 ELSE ?6 END, ?7, ?8, ?9, ?10, coalesce (o.since, coalesce (o.sequence, 0)), " \
       "CASE WHEN o.id IS NOT NULL AND o.seal IS NOT NULL OR o.id IS NULL AND " \
       "EXISTS (SELECT 1 FROM settings WHERE key = 'archive_key') AND " \
       "NOT EXISTS (SELECT 1 FROM settings WHERE key = 'open_journal_end') THEN 1 ELSE 0 END, " \
       "substr (o.seal, 3, 16) FROM (SELECT 1 AS one) AS one LEFT JOIN objects o ON o.uuid = ?1") \
    X (OPEN_OBJECTS, "SELECT count (*), CAST (coalesce (sum (size), 0) AS BIGINT) FROM objects WHERE seal IS NULL") \
    X (RETIRED_OBJECTS, "SELECT count (*), CAST (coalesce (sum (size), 0) AS BIGINT) FROM objects " \
       "WHERE seal IS NOT NULL AND substr (seal, 3, 16) != ?") \
    X (OPEN_DELETIONS, "SELECT count (*), coalesce (max (queued_age_ns), 0) FROM deletions WHERE sealed = 0") \
    X (RETIRED_DELETIONS, "SELECT count (*), coalesce (max (queued_age_ns), 0) FROM deletions " \
       "WHERE seal_key IS NOT NULL AND seal_key != ?") \
    X (DELETION_QUEUED, "SELECT EXISTS (SELECT 1 FROM deletions WHERE object = ? AND idx = ? AND instance = ? " \
       "AND endpoint = ?)") \
    X (DELETION_DUE, "SELECT " DELETION_COLUMNS " FROM deletions WHERE endpoint = ? AND at_once = ? " \
       "AND queued_age_ns <= ? AND (queued_age_ns, id) > (?, ?) ORDER BY queued_age_ns, id LIMIT ?") \
    X (DELETION_SUM, "SELECT count (*), CAST (coalesce (sum (bytes), 0) AS BIGINT) FROM deletions WHERE endpoint = ?") \
    X (DELETION_FIND, "SELECT id, at_once FROM deletions WHERE object = ? AND idx = ? AND instance = ? AND endpoint = ? " \
       "ORDER BY at_once = 3 DESC, at_once DESC LIMIT 1") \
    X (DELETIONS_REMOVED, "SELECT id, endpoint, queued_age_ns, queued_ns, bytes, sequence FROM deletions " \
       "WHERE id > ? AND +at_once = 0 ORDER BY id LIMIT ?") \
    X (DEATHS_SINCE, "SELECT coalesce (max (id), 0), CAST (coalesce (sum (bytes), 0) AS BIGINT) FROM deletions WHERE id > ?") \
    X (DEATH_OF, "SELECT coalesce (max (d.id), 0), coalesce (max (CASE WHEN d.at_once = 4 AND " \
       "EXISTS (SELECT 1 FROM marks m WHERE m.sequence >= d.born) THEN 1 ELSE 0 END), 0) FROM deletions d WHERE d.object = ? AND d.idx = ? AND d.instance = ?") \
    X (DEATH_OF_OBJECT, "SELECT coalesce (max (d.id), 0), coalesce (max (CASE WHEN d.at_once = 4 AND " \
       "EXISTS (SELECT 1 FROM marks m WHERE m.sequence >= d.born) THEN 1 ELSE 0 END), 0) FROM deletions d WHERE d.object = ?") \
    X (DEATHS_LIST, "SELECT id, object FROM deletions WHERE id > ? ORDER BY id LIMIT ?") \
    X (MARK_LIST, "SELECT name, epoch, sequence, time_ns FROM marks ORDER BY sequence, name") \
    X (MARK_GET, "SELECT name, epoch, sequence, time_ns FROM marks WHERE name = ?") \
    X (MARK_SET, "INSERT INTO marks (name, epoch, sequence, time_ns) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE " \
       "SET epoch = excluded.epoch, sequence = excluded.sequence, time_ns = excluded.time_ns") \
    X (MARK_DELETE, "DELETE FROM marks WHERE name = ?") \
    X (MARK_BYTES, "SELECT CAST (coalesce (sum (bytes), 0) AS BIGINT) FROM deletions " \
       "WHERE at_once = 4 AND born <= ?1 AND sequence > ?1") \
    X (DELETIONS_NEXT, "SELECT coalesce (max (id), 0) FROM (SELECT id FROM deletions WHERE id > ? ORDER BY id LIMIT ?) AS next") \
    X (MARKED_SETTLE, "UPDATE deletions AS d SET at_once = 0 WHERE id > ? AND id <= ? AND at_once = 4 " \
       "AND NOT EXISTS (SELECT 1 FROM marks m WHERE m.sequence >= d.born AND m.sequence < d.sequence)") \
    Y (OBJECT_SINCE, "UPDATE objects SET since = min (" SINCE_OF_TWO ") WHERE id = ?1", \
       "UPDATE objects SET since = least (" SINCE_OF_TWO ") WHERE id = ?1") \
    X (OBJECT_SINCE_EVER, "UPDATE objects SET since = 0 WHERE id = ?") \
    X (OBJECTS_SINCE_EVER, "UPDATE objects SET since = 0 WHERE EXISTS (SELECT 1 FROM marks)") \
    X (LOSSES_INSERT, "INSERT INTO losses (age_ns, time_ns, n_lost, n_files) SELECT ?1, ?2, ?3, ?4 " \
       "WHERE NOT EXISTS (SELECT 1 FROM losses WHERE age_ns > ?1) ON CONFLICT DO NOTHING") \
    X (LOSSES_FORGET, "DELETE FROM losses WHERE age_ns < (SELECT max (age_ns) FROM losses WHERE age_ns <= ?)") \
    X (LOSSES_LIST, "SELECT age_ns, time_ns, n_lost, n_files FROM losses ORDER BY age_ns") \
    X (LOSSES_DELETE, "DELETE FROM losses") \
    X (BRAKE_GET, "SELECT until_age_ns, from_age_ns, from_ns, from_lost, from_files, last_age_ns, last_ns, last_lost, " \
       "last_files FROM brake WHERE id = 1") \
    X (BRAKE_SET, "INSERT INTO brake (id, until_age_ns, from_age_ns, from_ns, from_lost, from_files, " \
       "last_age_ns, last_ns, last_lost, last_files) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET " \
       "until_age_ns = excluded.until_age_ns, from_age_ns = excluded.from_age_ns, from_ns = excluded.from_ns, " \
       "from_lost = excluded.from_lost, from_files = excluded.from_files, last_age_ns = excluded.last_age_ns, " \
       "last_ns = excluded.last_ns, last_lost = excluded.last_lost, last_files = excluded.last_files") \
    X (BRAKE_DELETE, "DELETE FROM brake") \
    X (RELEASED_GET, "SELECT age_ns, time_ns, reason FROM released WHERE id = 1") \
    X (RELEASED_SET, "INSERT INTO released (id, age_ns, time_ns, reason) VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE " \
       "SET age_ns = excluded.age_ns, time_ns = excluded.time_ns, reason = excluded.reason") \
    X (DELETION_DOOM, "UPDATE deletions SET at_once = 3 WHERE id = ?") \
    X (DELETION_DELETE, "DELETE FROM deletions WHERE id = ?") \
    X (DELETION_DELETE_ALL, "DELETE FROM deletions WHERE id > ?") \
    /* One that comes again gets a new id. */ \
    Y (PAST_INSERT, "INSERT OR REPLACE " PAST_ROW, "INSERT " PAST_ROW " ON CONFLICT (uuid) DO UPDATE SET id = excluded.id, " \
       "epoch = excluded.epoch, sequence = excluded.sequence, code = excluded.code, size = excluded.size, " \
       "segment_bytes = excluded.segment_bytes, block_bytes = excluded.block_bytes, header_bytes = excluded.header_bytes, " \
       "digest = excluded.digest, sha256 = excluded.sha256, seal = excluded.seal, kind = excluded.kind, " \
       "removed_age_ns = excluded.removed_age_ns") \
    X (PAST_GET, "SELECT " PAST_COLUMNS " FROM past_objects WHERE id = ?") \
    X (PAST_BY_UUID, "SELECT " PAST_COLUMNS " FROM past_objects WHERE uuid = ?") \
    X (PAST_LIST, "SELECT " PAST_COLUMNS " FROM past_objects p WHERE id > ?1 AND " PAST_IS_KEPT " ORDER BY id LIMIT ?3") \
    X (PAST_LIST_BY_UUID, "SELECT " PAST_COLUMNS " FROM past_objects p WHERE uuid > ?1 AND " PAST_IS_KEPT \
       " ORDER BY uuid LIMIT ?3") \
    X (PAST_STRIPES, "SELECT idx, instance, endpoint, bytes, digest FROM deletions WHERE object = ? AND " IS_PAST \
       " AND digest IS NOT NULL ORDER BY idx, id DESC") \
    /* The stripe that is exchanged waits for itself from now on; what takes its place waits as it did. */ \
    X (PAST_STRIPE_LEAVE, "INSERT INTO deletions (object, idx, instance, endpoint, queued_age_ns, at_once, sequence, " \
       "bytes, queued_ns, digest, born, sealed, seal_key) SELECT object, idx, instance, endpoint, ?4, 2, ?5, bytes, ?6, " \
       "digest, born, sealed, seal_key FROM deletions WHERE object = ?1 AND idx = ?2 AND instance = ?3 AND " IS_PAST) \
    X (PAST_STRIPE_SET, "UPDATE deletions SET instance = ?4, endpoint = ?5, bytes = ?6, digest = ?7 " \
       "WHERE object = ?1 AND idx = ?2 AND instance = ?3 AND " IS_PAST) \
    X (PAST_STRIPE_ADD, "INSERT INTO deletions (object, idx, instance, endpoint, queued_age_ns, at_once, sequence, " \
       "bytes, queued_ns, digest, born, sealed, seal_key) SELECT object, ?2, ?3, ?4, queued_age_ns, at_once, sequence, " \
       "?5, queued_ns, ?6, born, sealed, seal_key FROM deletions WHERE object = ?1 AND " IS_PAST " ORDER BY id LIMIT 1") \
    X (PAST_DELETE, "DELETE FROM past_objects WHERE uuid = ?") \
    X (PAST_DELETE_ALL, "DELETE FROM past_objects WHERE id > ?") \
    /* Ids ascend with age: where none of the next is old no later one is. */ \
    X (PAST_OLD, "SELECT coalesce (max (id), 0) FROM (SELECT id, removed_age_ns FROM past_objects WHERE id > ?1 " \
       "ORDER BY id LIMIT ?3) AS next WHERE removed_age_ns <= ?2") \
    X (PAST_FORGET, "DELETE FROM past_objects AS p WHERE id > ?1 AND id <= ?3 AND NOT " PAST_IS_KEPT) \
    X (PAST_DOOM, "DELETE FROM past_objects WHERE uuid = (SELECT object FROM deletions WHERE id = ? AND " IS_PAST ")") \
    X (PAST_DELETE_AT, "DELETE FROM past_objects WHERE uuid IN (SELECT object FROM deletions WHERE endpoint = ?1 " \
       "ORDER BY at_once, queued_age_ns, id LIMIT ?2) AND NOT EXISTS (SELECT 1 FROM deletions d " \
       "WHERE d.object = past_objects.uuid AND d." IS_PAST " AND d.endpoint <> ?1)") \
    Y (STAGING_INSERT, "INSERT INTO staging (id, ino, state, fresh, size, since_ns) VALUES (?, ?, 0, ?, 0, ?)", \
       "INSERT INTO staging (id, ino, state, fresh, size, since_ns, member) VALUES (?, ?, 0, ?, 0, ?, MINE)") \
    X (STAGING_GET, "SELECT " STAGING_COLUMNS " FROM staging WHERE id = ?") \
    Y (STAGING_LIST, "SELECT " STAGING_COLUMNS " FROM staging ORDER BY id", \
       "SELECT " STAGING_COLUMNS " FROM staging WHERE member = MINE ORDER BY id") \
    Y (STAGING_ELSEWHERE, "SELECT NULL, 0 WHERE ? IS NULL", "SELECT m.who, m.session IS NOT NULL FROM staging s " \
       "JOIN members m ON m.id = s.member WHERE s.ino = ? AND s.member <> MINE ORDER BY 2 DESC LIMIT 1") \
    Y (STAGING_DELETE_ELSEWHERE, "DELETE FROM staging WHERE ino = ? AND id < 0", \
       "DELETE FROM staging WHERE ino = ? AND member <> MINE") \
    X (STAGING_UPDATE, "UPDATE staging SET state = ?2, size = ?3, since_ns = ?4, error = ?5, "                           \
                       "fresh = CASE WHEN fresh <> 0 AND CAST (?2 AS BIGINT) < 2 THEN 1 ELSE 0 END WHERE id = ?1") \
    X (STAGING_UNSTORED, "SELECT 1 FROM staging WHERE ino = ? AND state < 2 LIMIT 1") \
    X (STAGING_QUEUED, "SELECT 1 FROM staging WHERE ino = ? AND state = 1 LIMIT 1") \
    X (STAGING_FRESH, "SELECT 1 FROM staging WHERE ino = ? AND fresh = 1 LIMIT 1") \
    X (STAGING_NOT_FRESH, "UPDATE staging SET fresh = 0 WHERE ino = ?") \
    X (STAGING_DELETE, "DELETE FROM staging WHERE id = ?") \
    X (STAGING_OLDER, "SELECT count (*) FROM staging WHERE ino = ? AND id < ?") \
    X (STAGING_DELETE_OLDER, "DELETE FROM staging WHERE ino = ? AND id < ?") \
    X (STAGING_DELETE_INO, "DELETE FROM staging WHERE ino = ?") \
    X (ENDPOINT_SEED, "INSERT INTO endpoints (id, uuid, name, state) VALUES (?, ?, ?, ?)") \
    X (ENDPOINT_INSERT, "INSERT INTO endpoints (uuid, name, state) VALUES (?, ?, ?)") \
    X (ENDPOINT_GET, "SELECT id, uuid, name, state FROM endpoints WHERE id = ?") \
    X (ENDPOINT_FIND, "SELECT uuid = ?1, name FROM endpoints WHERE uuid = ?1 OR name = ?2 LIMIT 1") \
    X (ENDPOINT_STATE, "SELECT state FROM endpoints WHERE id = ?") \
    X (ENDPOINT_LIST, "SELECT id, uuid, name, state FROM endpoints WHERE state <> 4 ORDER BY id") \
    X (ENDPOINT_LIST_ALL, "SELECT id, uuid, name, state FROM endpoints ORDER BY id") \
    X (ENDPOINT_REMOVED, "SELECT name FROM endpoints WHERE uuid = ? AND state = 4") \
    X (ENDPOINT_NAME_REMOVED, "SELECT count (*) FROM endpoints WHERE state = 4 AND substr (name, 1, length (?1)) = ?1") \
    X (STRIPE_BYTES, "SELECT endpoint, CAST (sum (size) AS BIGINT) FROM stripes WHERE object > ? AND object <= ? GROUP BY endpoint") \
    X (OBJECT_SKIP, "SELECT coalesce (max (id), 0) FROM (SELECT id FROM objects WHERE id > ? ORDER BY id LIMIT ?) AS next") \
    X (STRIPES_AT, "SELECT object, idx, instance, size FROM stripes WHERE object > ? AND object <= ? AND endpoint = ? " \
       "ORDER BY object, idx") \
    X (ANNOUNCED_AT, "SELECT count (*) FROM intent_stripes WHERE endpoint = ?") \
    X (DELETIONS_AT, "SELECT count (*) FROM deletions WHERE endpoint = ?") \
    X (DELETION_DELETE_AT, "DELETE FROM deletions WHERE id IN (SELECT id FROM deletions WHERE endpoint = ? " \
       "ORDER BY at_once, queued_age_ns, id LIMIT ?)") \
    X (PLACE_DELETE, "DELETE FROM journal_places WHERE endpoint = ?") \
    X (ESTIMATE_DELETE, "DELETE FROM estimates WHERE endpoint = ?") \
    X (ESTIMATE_GET, "SELECT " ESTIMATE_COLUMNS " FROM estimates WHERE endpoint = ?") \
    X (ESTIMATE_SET, "INSERT INTO estimates (" ESTIMATE_COLUMNS ", endpoint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) " \
       "ON CONFLICT (endpoint) DO UPDATE SET (" ESTIMATE_COLUMNS ") = (" EXCLUDED_ESTIMATE_COLUMNS ")") \
    X (REPAIR_INSERT, "INSERT INTO repairs (object, idx, gone, found_ns, reason) " \
       "SELECT s.object, s.idx, ?4, ?5, ?6 FROM stripes s JOIN objects o ON o.id = s.object " \
       "WHERE o.uuid = ?1 AND s.idx = ?2 AND s.instance = ?3 ON CONFLICT DO NOTHING") \
    X (REPAIR_DROP, "DELETE FROM repairs WHERE (object, idx) IN (SELECT s.object, s.idx FROM stripes s " \
       "JOIN objects o ON o.id = s.object WHERE o.uuid = ?1 AND s.idx = ?2 AND s.instance = ?3)") \
    X (REPAIR_COUNT, "SELECT count (*) FROM repairs") \
    X (REPAIR_LIST, "SELECT " REPAIR_COLUMNS " WHERE r.object >= ?1 AND r.object <= ?2 ORDER BY r.object, r.idx") \
    X (ENDPOINT_SET_STATE, "UPDATE endpoints SET state = ?2 WHERE id = ?1") \
    X (CODE_GET, "SELECT parameters FROM codes WHERE code = ?") \
    X (CODE_INSERT, "INSERT INTO codes (code, parameters) VALUES (?, ?)") \
    X (JOURNAL_INSERT, "INSERT INTO journal (seq, time_ns, record) VALUES (?, ?, ?)") \
    Y (JOURNAL_ADD, "SELECT ? + ? + ? + ?", "INSERT INTO journal (seq, time_ns, record) SELECT c.sequence + ?1, " \
       "CAST (?2 AS bigint), CAST (?3 AS bytea) || coalesce (substr (sha256 (" PG_LE8 ("j.seq") " || " \
       PG_LE8 ("j.time_ns") " || substr (" PG_LE8 ("length (j.record)") ", 1, 4) || j.record), 1, 16), ?4) " \
       "FROM counters c LEFT JOIN journal j ON j.seq = c.sequence + ?1 - 1 WHERE c.id = 1") \
    X (OBJECT_BYTES_BETWEEN, "SELECT CAST (coalesce (sum (size + ?3), 0) AS BIGINT) FROM objects WHERE uuid > ?1 AND uuid <= ?2") \
    X (JOURNAL_LIST, "SELECT seq, time_ns, record FROM journal WHERE seq > ? ORDER BY seq LIMIT ?") \
    X (JOURNAL_LAST, "SELECT seq, time_ns, record FROM journal ORDER BY seq DESC LIMIT 1") \
    X (JOURNAL_FIRST, "SELECT coalesce (min (seq), 0) FROM journal") \
    X (JOURNAL_BYTES, "SELECT CAST (coalesce (sum (length (record)), 0) AS BIGINT) FROM journal WHERE seq > ?") \
    X (JOURNAL_DROP, "DELETE FROM journal WHERE seq <= ? AND seq < ?") \
    X (JOURNAL_DROP_ALL, "DELETE FROM journal WHERE seq > ?") \
    X (PLACE_LIST, "SELECT endpoint, sequence, time_ns FROM journal_places ORDER BY endpoint") \
    X (PLACE_SET, "INSERT INTO journal_places (endpoint, sequence, time_ns) VALUES (?, ?, ?) " \
       "ON CONFLICT (endpoint) DO UPDATE SET sequence = excluded.sequence, time_ns = excluded.time_ns " \
       "WHERE journal_places.sequence < excluded.sequence") \
    X (PLACE_SET_BACK, "UPDATE journal_places SET sequence = ?2, time_ns = ?3 WHERE endpoint = ?1 AND sequence > ?2") \
    X (SETTING_LIST, "SELECT key, value FROM settings ORDER BY key") \
    X (SETTING_SET, "INSERT INTO settings (key, value) VALUES (?, ?) " \
       "ON CONFLICT (key) DO UPDATE SET value = excluded.value") \
    X (SNAPSHOT_LIST, "SELECT epoch, sequence, time_ns, bytes, n_copies FROM snapshots ORDER BY epoch DESC, sequence DESC") \
    X (SNAPSHOT_INSERT, "INSERT INTO snapshots (epoch, sequence, time_ns, bytes, n_copies) VALUES (?, ?, ?, ?, ?) " \
       "ON CONFLICT (epoch, sequence) DO UPDATE SET time_ns = excluded.time_ns, bytes = excluded.bytes, n_copies = excluded.n_copies") \
    X (SNAPSHOT_DELETE, "DELETE FROM snapshots WHERE epoch = ?1 AND sequence = ?2 AND " \
       "NOT EXISTS (SELECT 1 FROM marks m WHERE m.sequence >= ?2 AND m.sequence < ?3)") \
    X (SESSION_INSERT, "INSERT INTO sessions (number, uuid) VALUES (?, ?)") \
    X (SESSION_FORGET, "DELETE FROM sessions WHERE number <= ?") \
    X (SESSION_FIND, "SELECT 1 FROM sessions WHERE number = ? AND uuid = ?") \
    X (SESSION_LIST, "SELECT number, uuid FROM sessions ORDER BY number DESC LIMIT ?") \
    X (SESSION_FIRST, "SELECT coalesce (min (number), 0) FROM sessions") \
    X (SESSION_LAST, "SELECT coalesce (max (number), 0) FROM sessions") \
    X (EPOCH_SET, "UPDATE meta SET epoch = ? WHERE id = 1") \
    X (INODE_LIST, "SELECT " INODE_COLUMNS ", i.target, EXISTS (SELECT 1 FROM staging s WHERE s.ino = i.ino " \
       "AND s.fresh = 1) FROM inodes i ORDER BY i.ino") \
    X (CONTENT_LIST, "SELECT i.ino, i.committed_size, i.data_bytes, i.content_sum, e.start, e.length, e.object, " \
       "e.object_start FROM inodes i LEFT JOIN extents e ON e.ino = i.ino ORDER BY i.ino") \
    X (INODE_SET_BIRTH, "UPDATE inodes SET btime_ns = ?2 WHERE ino = ?1") \
    X (INODE_SET_TARGET, "UPDATE inodes SET target = ?2 WHERE ino = ?1") \
    X (INDEX_DROP_POSITIONS, "DROP INDEX IF EXISTS entries_by_position") \
    X (INDEX_DROP_INOS, "DROP INDEX IF EXISTS entries_by_ino") \
    X (INDEX_DROP_OBJECTS, "DROP INDEX IF EXISTS extents_by_object") \
    X (INDEX_MAKE_POSITIONS, "CREATE UNIQUE INDEX IF NOT EXISTS " ECFS_INDEX_ENTRIES_BY_POSITION) \
    X (INDEX_MAKE_INOS, "CREATE INDEX IF NOT EXISTS " ECFS_INDEX_ENTRIES_BY_INO) \
    X (INDEX_MAKE_OBJECTS, "CREATE INDEX IF NOT EXISTS " ECFS_INDEX_EXTENTS_BY_OBJECT) \
    X (EXTENT_LIST_ALL, "SELECT " EXTENT_COLUMNS ", ino FROM extents ORDER BY ino, start") \
    X (ENTRY_LIST_ALL, "SELECT parent, name, ino FROM entries INDEXED BY entries_by_position " \
       "ORDER BY parent, position") \
    X (ENTRY_LIST_INO, "SELECT parent, name FROM entries WHERE ino = ?") \
    X (ENTRY_DIRECTORIES, "SELECT DISTINCT parent FROM entries WHERE ino = ?") \
    X (XATTR_LIST_ALL, "SELECT ino, name, value FROM xattrs ORDER BY ino, name") \
    X (CODE_LIST, "SELECT code, parameters FROM codes ORDER BY code") \
    X (CODES_IN_USE, "SELECT DISTINCT code FROM objects UNION SELECT code FROM inodes WHERE code IS NOT NULL AND " \
       "mode & 61440 = 16384") \
    X (DIRECTORIES_WITH_CODES, "SELECT min(ino) FROM inodes WHERE code IS NOT NULL AND mode & 61440 = 16384 AND " \
       "nlink > 0 GROUP BY code") \
    X (INTENT_OPEN, "SELECT object, ino FROM intents WHERE ino <> 0 ORDER BY id") \
    X (INTENT_HAS, "SELECT 1 FROM intents WHERE object = ? LIMIT 1") \
    X (INTENT_DELETE_OBJECT, "DELETE FROM intents WHERE object = ?") \
    X (INTENT_DELETE_INO, "DELETE FROM intents WHERE ino = ? AND sequence < ?") \
    X (INTENT_DELETE_ALL, "DELETE FROM intents") \
    X (DELETION_LIST_ALL, "SELECT " DELETION_COLUMNS " FROM deletions ORDER BY id") \
    X (ENDPOINT_BY_UUID, "SELECT id FROM endpoints WHERE uuid = ?") \
    X (ENDPOINT_NAMED, "SELECT id FROM endpoints WHERE name = ?") \
    X (ENDPOINT_RENAME, "UPDATE endpoints SET name = ?2 WHERE id = ?1") \
    X (JOURNAL_MAX, "SELECT coalesce (max (seq), 0) FROM journal")
/* clang-format on */

#define ECFS_STATEMENT_ID(id, ...) STMT_##id,
typedef enum StatementId { ECFS_STATEMENTS (ECFS_STATEMENT_ID, ECFS_STATEMENT_ID) N_STATEMENTS } StatementId;
#undef ECFS_STATEMENT_ID

#endif
