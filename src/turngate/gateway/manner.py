"""Words that tell nothing of a fact by themselves, by language: notes have them whoever speaks.

Two kinds: words that only join others, and the verbs in which notes on a person are written. They
are data. A language that is missing loses facts, and is given no false one.
"""

from __future__ import annotations

from turngate.facts import fact_words

__all__ = ["JOINING", "VERBS"]

# The word for the user stands among the joining ones: it is in every note.
JOINING = frozenset(
    fact_words(
        """
        the user and are was were been has had have with from for not but who that this their
        them they she her hers his him you your its our there where when which does did very also
        than then into onto about since during each some any all one year years old age aged
        der die das dem den des ein eine einer einem einen und oder mit von vom bei aus nach für
        ist sind war hat haben hatte nicht sein seine seiner seinem ihre ihrer ihrem auf als auch
        sehr seit jahre jahren alt alte alten alter altes nutzer benutzer nutzerin benutzerin
        les des une aux avec dans pour sur est sont était ont pas son ses leur leurs qui que ans
        âgé depuis aussi utilisateur utilisatrice
        los las una unos unas con por para del que sus está son era tiene años desde también muy
        usuario usuaria
        gli della dello delle degli dal nel nella con per che suo sua suoi ha sono era anni
        anche molto utente
        dos das uma com por para que seu sua seus tem são era anos desde também muito usuário
        utilizador
        это она они его для что как при или над под есть был была были его её лет года уже очень
        тоже также пользователь пользователя
        """
    )
)
VERBS = frozenset(
    fact_words(
        """
        lives lived likes liked loves enjoys prefers wants plans owns works worked uses used speaks
        named called name
        wohnt lebt arbeitet mag liebt möchte plant besitzt spricht heißt genannt namens name isst
        habite vit travaille aime préfère veut possède parle appelle nommé nommée
        vive reside trabaja gusta gustan prefiere quiere planea habla llama llamado llamada come
        abita lavora piace preferisce vuole parla chiama chiamato chiamata mangia
        mora trabalha gosta prefere quer fala chama chamado chamada
        живет живёт работает любит хочет предпочитает говорит зовут
        """
    )
)
