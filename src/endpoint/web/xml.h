/*
 * XML that nobody vouches for, read by libxml2 as a stream of events, in memory that does not grow with the document. A
 * document type is refused, so there are no entities but XML's own five, and nothing outside is ever looked at.
 */
#ifndef ECFS_ENDPOINT_WEB_XML_H
#define ECFS_ENDPOINT_WEB_XML_H

#include "util/error.h"

#include <stddef.h>

#define ECFS_XML_MAX_DEPTH 32

/* What a reader makes of documents. */
typedef struct EcfsXmlReader {
    const char *what;     /* the document, in messages: "the server's answer" */
    const char *too_long; /* what a text that is too long says of it: "has a value that is too long" */
    unsigned max_depth;   /* of elements in each other, ECFS_XML_MAX_DEPTH at most */
    size_t max_text;      /* bytes, of one element */
    size_t max_document;  /* bytes */
    /* An element begins; @depth is 1 for the outermost, @space its name space or NULL. Returns whether its text counts.
     */
    bool (*start) (void *user, unsigned depth, const char *space, const char *name);
    /* It has ended. @text is its text, without blanks around it, behind the last element in it whose text counts as
     * well; NULL where this one's does not count. Borrowed for the call. */
    void (*end) (void *user, unsigned depth, const char *name, const char *text);
} EcfsXmlReader;

typedef struct EcfsXml EcfsXml;

/** @reader is borrowed for as long as the result lives, and so is @user, which its functions get. */
EcfsXml *ecfs_xml_new (const EcfsXmlReader *reader, void *user);
/** From start or end: the document is refused; @wrong is a literal that goes on behind the reader's what. The first one
 * counts. */
void ecfs_xml_refuse (EcfsXml *self, const char *wrong);
/** The next bytes. EPROTO for what is no XML, was refused, has a document type, or is deeper or longer than it may be.
 */
bool ecfs_xml_feed (EcfsXml *self, const void *bytes, size_t size, GError **error);
/** There are no more. EPROTO when the document is not complete. */
bool ecfs_xml_end (EcfsXml *self, GError **error);
void ecfs_xml_free (EcfsXml *self); /* NULL is accepted */

#endif
