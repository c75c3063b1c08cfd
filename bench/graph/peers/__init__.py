"""The systems that the graph benchmark measures, one a file, each a subclass of `Peer`."""

PEERS = ["kuzu", "falkordb", "redis", "postgres", "fondaco"]


class Peer:
    """One system: how it loads the graph, and its answers.

    The network of a vertex is what is one or two edges away, without the vertex. `network_members` and `common` return
    something that `ids` turns into integers, outside of the measured time.
    """

    name = ""
    # How the answers are computed, for the report.
    method = {}

    def __init__(self, data, manifest, work, csr):
        self.data, self.manifest, self.work, self.csr = data, manifest, work, csr

    def start(self):
        raise NotImplementedError

    def load(self):
        raise NotImplementedError

    def pids(self):
        """The processes whose memory counts."""
        raise NotImplementedError

    def stored_bytes(self):
        """Bytes of the loaded graph: {"disk": …} or {"memory": …}."""
        raise NotImplementedError

    def version(self):
        raise NotImplementedError

    def network_size(self, source):
        raise NotImplementedError

    def network_members(self, source):
        raise NotImplementedError

    def badges(self, source, targets):
        """The distances in the order of the targets; -1 if over 3."""
        raise NotImplementedError

    def common(self, a, b):
        raise NotImplementedError

    def ids(self, members):
        return [int(member) for member in members]

    def stop(self):
        pass


def in_order(targets, found):
    return [found.get(target, -1) for target in targets]
