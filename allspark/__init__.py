"""`penstock.allspark`: the names of `frontend/allspark/` under the path that users of DashInfer import."""

from ..frontend.allspark import *  # noqa: F403
from ..frontend.allspark import __all__ as __all__
