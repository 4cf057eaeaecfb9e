#include "endpoint/web/xml.h"

#include <libxml/parser.h>

struct EcfsXml {
    xmlParserCtxtPtr context;
    const EcfsXmlReader *reader;
    void *user;
    unsigned depth;
    bool counts[ECFS_XML_MAX_DEPTH]; /* the text of the open elements */
    GString *text;
    size_t n_bytes;
    bool complete; /* the outermost element has ended */
    const char *wrong;
};

void ecfs_xml_refuse (EcfsXml *self, const char *wrong)
{
    if (self->wrong == NULL)
        self->wrong = wrong;
    xmlStopParser (self->context);
}

static void on_start (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int n_namespaces,
                      const xmlChar **namespaces, int n_attributes, int n_defaulted, const xmlChar **attributes)
{
    EcfsXml *self = user;
    (void) prefix, (void) n_namespaces, (void) namespaces, (void) n_attributes, (void) n_defaulted, (void) attributes;
    if (self->depth == self->reader->max_depth) {
        ecfs_xml_refuse (self, "is nested too deeply");
        return;
    }
    unsigned depth = ++self->depth;
    bool counts = self->reader->start (self->user, depth, (const char *) uri, (const char *) name);
    self->counts[depth - 1] = counts;
    if (counts)
        g_string_truncate (self->text, 0);
}

static void on_characters (void *user, const xmlChar *text, int size)
{
    EcfsXml *self = user;
    if (self->depth == 0 || !self->counts[self->depth - 1])
        return;
    if (self->text->len + (size_t) size > self->reader->max_text)
        ecfs_xml_refuse (self, self->reader->too_long);
    else
        g_string_append_len (self->text, (const char *) text, size);
}

static void on_end (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    EcfsXml *self = user;
    (void) prefix, (void) uri;
    if (self->depth == 0)
        return;
    bool counts = self->counts[self->depth - 1];
    const char *text = counts ? g_strstrip (self->text->str) : NULL;
    self->reader->end (self->user, self->depth, (const char *) name, text);
    if (counts)
        g_string_truncate (self->text, 0);
    self->complete = --self->depth == 0;
}

static void on_document_type (void *user, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    (void) name, (void) external, (void) system;
    ecfs_xml_refuse (user, "has a document type");
}

/* Errors are told by what feed and end return. */
static void on_problem (void *user, const xmlError *problem)
{
    (void) user, (void) problem;
}

EcfsXml *ecfs_xml_new (const EcfsXmlReader *reader, void *user)
{
    static const xmlSAXHandler handler = {
        .initialized = XML_SAX2_MAGIC,
        .internalSubset = on_document_type,
        .startElementNs = on_start,
        .endElementNs = on_end,
        .characters = on_characters,
        .cdataBlock = on_characters,
        .serror = (xmlStructuredErrorFunc) on_problem,
    };
    g_assert (reader->max_depth <= ECFS_XML_MAX_DEPTH);
    EcfsXml *self = g_new0 (EcfsXml, 1);
    xmlSAXHandler copy = handler; /* libxml2 copies it again */
    self->reader = reader;
    self->user = user;
    self->text = g_string_new (NULL);
    self->context = xmlCreatePushParserCtxt (&copy, self, NULL, 0, NULL);
    if (self->context == NULL)
        g_error ("out of memory");
    (void) xmlCtxtUseOptions (self->context, XML_PARSE_NONET);
    return self;
}

static bool feed (EcfsXml *self, const void *bytes, size_t size, bool last, GError **error)
{
    const EcfsXmlReader *reader = self->reader;
    self->n_bytes += size;
    if (self->n_bytes > reader->max_document)
        return ecfs_fail (error, EPROTO, "%s is too long", reader->what);
    /* What it returns counts warnings too, such as of "DAV:", which is no URI to its taste. */
    (void) xmlParseChunk (self->context, bytes, (int) size, last);
    if (self->wrong != NULL)
        return ecfs_fail (error, EPROTO, "%s %s", reader->what, self->wrong);
    if (!self->context->wellFormed || (last && !self->complete))
        return ecfs_fail (error, EPROTO, "%s is not a complete XML document", reader->what);
    return true;
}

bool ecfs_xml_feed (EcfsXml *self, const void *bytes, size_t size, GError **error)
{
    return feed (self, bytes, size, false, error);
}

bool ecfs_xml_end (EcfsXml *self, GError **error)
{
    return feed (self, NULL, 0, true, error);
}

void ecfs_xml_free (EcfsXml *self)
{
    if (self == NULL)
        return;
    xmlFreeParserCtxt (self->context);
    g_string_free (self->text, TRUE);
    g_free (self);
}
