"""`penstock.allspark.model_loader`: the same names where DashInfer's scripts look for some of them."""

from ..frontend.allspark import *  # noqa: F403
from ..frontend.allspark import __all__ as __all__
