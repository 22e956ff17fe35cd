"""`python -m paradyse_megatron` is the `paradyse` command."""

import sys

from paradyse_megatron.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
