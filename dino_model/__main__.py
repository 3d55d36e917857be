"""`python -m dino_model list | show NAME | export NAME | class-map`."""

from dino_model.commands import main

if __name__ == "__main__":
    main()
