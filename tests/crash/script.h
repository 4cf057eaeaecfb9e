/*
 * What a crash interrupts: a script of operations on an archive, one line each (or several, separated by ';'). Files
 * and handles are named by paths below the root, a handle by the path that it was opened with.
 *
 *   create P          a new file, open for writing          open P       the same of one that is there
 *   truncate P        open it with O_TRUNC                   write P O N  N bytes of this operation's own at offset O
 *   resize P N        ftruncate                              flush P      close(2) of one of several descriptors
 *   fsync P                                                  close P      flush, and the last one
 *   begin P           a flush whose answer nobody awaits     await P      until that answer
 *   link P Q          rename P Q     unlink P                mkdir P      rmdir P      symlink P T
 *   setxattr P V      removexattr P  (of user.note)          mtime P S    seconds
 *   hide I            the root of endpoint I goes away       show I
 *   wait              until all is stored in full            remount      drain, close, open
 *   recode P CODE     of a file or of all below a directory
 *   pack              all logs and packs
 *   put P N           ecfs put of N bytes, without a mount   sync         fsync(2) of a directory
 *   empty I           moves all off endpoint I        remove I   takes it out of the archive
 *   drain             until all deletions are worked off     end          of the mount, with what is open; the last
 *   read P            all of it                              fsck         ecfs-fsck -y without a mount
 *   replace I J       endpoint I by J, which is made         readonly I   active I
 *   damage I          a byte of each stripe at endpoint I    lose I       all its stripes; both are queued for repair
 *   heal              the repairs behind a mount, until there is nothing left to repair
 *   recover           the archive directory is lost and made from the endpoints, after all is stored
 *   backup            of the archive directory               stale        it is put back, tried, and taken away again
 *   way               one more way to open the keys          rotate       another key           keyed        the first
 * one blot I            files of journal and snapshots at endpoint I are removed, cut off or changed
 *
 * On another machine, beside the archive that goes on (elsewhere.h):
 *
 *   elsewhere P N S   a recovery begins, stops at the Nth tick of phase P (or nowhere), and dies at its step S (0:
 * none) resume            it goes on                             outcome      … until it ends, which is awaited freeze
 * N          it stands still for N milliseconds     kill, cancel without I         recoveries are not given endpoint I
 * spoil I E    all that they write there fails with E
 */
#ifndef ECFS_TESTS_CRASH_SCRIPT_H
#define ECFS_TESTS_CRASH_SCRIPT_H

#include <glib.h>
#include <stdint.h>

typedef enum OpKind {
    OP_CREATE,
    OP_OPEN,
    OP_TRUNCATE,
    OP_WRITE,
    OP_RESIZE,
    OP_FLUSH,
    OP_FSYNC,
    OP_CLOSE,
    OP_BEGIN,
    OP_AWAIT,
    OP_LINK,
    OP_RENAME,
    OP_UNLINK,
    OP_MKDIR,
    OP_RMDIR,
    OP_SYMLINK,
    OP_SETXATTR,
    OP_REMOVEXATTR,
    OP_MTIME,
    OP_HIDE,
    OP_SHOW,
    OP_WAIT,
    OP_REMOUNT,
    OP_PUT,
    OP_RECODE,
    OP_COOL,
    OP_PACK,
    OP_SYNC,
    OP_DRAIN,
    OP_EMPTY,
    OP_TAKE_OUT,
    OP_READ,
    OP_FSCK,
    OP_REPLACE,
    OP_READONLY,
    OP_ACTIVE,
    OP_DAMAGE,
    OP_LOSE,
    OP_HEAL,
    OP_RECOVER,
    OP_BACKUP,
    OP_STALE,
    OP_BLOT,
    OP_WAY,
    OP_ROTATE,
    OP_KEYED,
    OP_ELSEWHERE,
    OP_RESUME,
    OP_OUTCOME,
    OP_FREEZE,
    OP_KILL,
    OP_CANCEL,
    OP_WITHOUT,
    OP_SPOIL,
    OP_END,
} OpKind;

typedef struct Op {
    OpKind kind;
    char *path;    /* or NULL */
    char *other;   /* second path, value, target; or NULL */
    uint64_t a, b; /* numbers in the order in which they are written */
    unsigned seed; /* of the bytes that it writes */
} Op;

typedef GPtrArray Script; /* of Op */

/** Aborts on what it does not understand. @first_seed: different bytes for each script. */
Script *script_new (const char *text, unsigned first_seed);

/** @size bytes that only @seed has. */
GBytes *script_bytes (unsigned seed, size_t size);

/** What tells bytes from others, for the board of a process that may die. */
uint64_t script_hash (GBytes *bytes);

#endif
